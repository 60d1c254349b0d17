"""How results are drawn on a terminal."""
