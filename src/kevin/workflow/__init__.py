"""What the rules of the workflow ask of Python: which files there are and of which others each is made, on what a step
depends, what it needs of a machine, and whose a folder is."""
