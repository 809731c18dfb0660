"""The parts that all methods share: events, machines, codec, options, verdict and registry."""
