"""What a task reads: fetch answers become chunks, a chooser says which is next, and some records are left out."""
