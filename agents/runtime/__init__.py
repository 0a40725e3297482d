"""One task, its intake, its log, the outbox and the committer, each obeying its machine, through a port."""
