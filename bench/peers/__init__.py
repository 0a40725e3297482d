"""The same three works on headgate and on its peers; each program is told its work and its topics by `BENCH_…` variables."""
