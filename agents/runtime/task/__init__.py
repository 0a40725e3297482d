"""One task: what its actor does with a letter, and how each part carries out what the machine orders."""
