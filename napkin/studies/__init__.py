"""Tables that reports need: strategies, rooflines, the paper's pipelines, simulator, routing."""
