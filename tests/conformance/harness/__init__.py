"""The conformance driver: it starts servers, runs SDK programs, and reports.

Only the Python standard library is used, so that the driver itself needs no
installation. `layout` says where files are, `toolchains` installs and builds
what a language needs, `server` owns the server process, `control` lets a
program ask for a kill, `program` runs one program step by step, `suites`
composes these into the things that `run` can be asked for, and `report`
prints the outcome.
"""
