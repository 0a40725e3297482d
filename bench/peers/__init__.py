"""The same three works on headgate and its peers. `BENCH_…` variables give each program its work and its topics."""
