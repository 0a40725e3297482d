"""The pytest fixture `driver` for users (see `headgate.testing`). Loading this file imports nothing else."""
