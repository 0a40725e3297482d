"""One compacted stream, from which every member derives the same state: what stands in it, and what it comes to."""
