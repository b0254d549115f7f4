"""What the rules of the workflow ask of Python: on what each step depends, and whose a folder is."""
