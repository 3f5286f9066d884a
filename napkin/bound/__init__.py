"""The least that a kernel moves: posynomials, their optimum, tiles for several levels."""
