"""What a labelled kernel runs as: a loop program, and Triton source written from it."""
