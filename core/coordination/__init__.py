"""One compacted stream, from which every member folds the same job state: its messages, and what they mean."""
