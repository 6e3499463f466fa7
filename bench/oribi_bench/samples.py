"""Samples and what is said of them: median and spread, ratios of pairs from the same round."""

import statistics


def spread(samples):
    """Median with extremes, and the samples themselves."""
    ordered = sorted(samples)
    return {"min": ordered[0], "median": statistics.median(ordered), "max": ordered[-1],
            "samples": list(samples)}


def ratios(numerators, denominators):
    """Spread of the ratio of samples that were taken one after the other, round by round."""
    return spread([above / below for above, below in zip(numerators, denominators, strict=True)])


def text_of(figure, digits=2):
    """`median (min to max)`."""
    return f"{figure['median']:.{digits}f} ({figure['min']:.{digits}f} to {figure['max']:.{digits}f})"


def text_of_bytes(count):
    """A size as people write it: in units of 1000 if it is a multiple of that, else of 1024."""
    base, units = (1000, ("B", "kB", "MB", "GB")) if count % 1000 == 0 else (1024, ("B", "KiB", "MiB", "GiB"))
    power = 0
    while power + 1 < len(units) and count % base ** (power + 1) == 0:
        power += 1
    return f"{count // base**power} {units[power]}"
