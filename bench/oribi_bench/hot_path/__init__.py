"""The figures of the hot path against memcached, one module per figure.

`contender` is who is measured, `trial` one run that is believed only after all counters agree, and
`comparison` the rounds in which contenders take turns and the ratios of what they found.
"""
