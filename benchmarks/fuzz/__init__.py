"""Fuzz targets: Hypothesis tests, with few examples in the suite and for minutes by ``make fuzz``.

Each ``test_*`` of this folder is a target. A failure that was found is kept by Hypothesis and tried
first the next time; what it shows goes into a test of its own beside what was mended.
"""
