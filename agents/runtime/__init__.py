"""One task, its intake, its log, the outbox and the committer: they carry out their machines' instructions through a port."""
