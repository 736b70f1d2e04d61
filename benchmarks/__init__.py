"""Measurements against peers, in one run on one machine: ``make bench``. Take the ratios, not the figures."""
