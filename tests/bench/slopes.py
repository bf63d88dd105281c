"""The slope of a series of samples, and how sure it is.

A series may consist of several lives of a process: each has a level of its own, and all of them share
the slope. Samples that follow one another are alike, so that their number says too much: the error
counts only as many as are independent by their autocorrelation of the first order.
"""

import math


def centred(life):
    """Times and values of a life, as differences from their means."""
    times, values = zip(*life, strict=True)
    time, value = sum(times) / len(life), sum(values) / len(life)
    return [(moment - time, height - value) for moment, height in life]


def slope(lives):
    """The slope a second of the lines with the least squares, and its standard error.

    `lives` are lists of (seconds, value). Without two samples in any of them there is no slope.
    """
    lives = [centred(life) for life in lives if len(life) > 1]
    points = [point for life in lives for point in life]
    across = sum(moment**2 for moment, _ in points)
    if not across:
        raise ValueError("too few samples for a slope")
    rise = sum(moment * height for moment, height in points) / across
    rests = [[height - rise * moment for moment, height in life] for life in lives]
    return rise, error(rests, across)


def error(rests, across):
    """The standard error of a slope, by what its lines leave over."""
    square = sum(rest**2 for life in rests for rest in life)
    count = sum(map(len, rests))
    free = count - len(rests) - 1
    if not square or free < 1:
        return 0.0
    pairs = sum(one * other for life in rests for one, other in zip(life, life[1:]))
    # Of a negative correlation nothing is made: the error is rather too large than too small.
    alike = min(max(pairs / square, 0.0), 0.99)
    return math.sqrt(square / free / across * (1 + alike) / (1 - alike))
