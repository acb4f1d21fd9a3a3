"""The lab: the paper's experiments, GPU kernels, benchmarks and dataset downloads.

Installing it adds `expunge reproduce` and `expunge bench` to the command line.
"""
