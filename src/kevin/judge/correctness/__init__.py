"""References with their secret trials, and the comparison of outputs with them."""
