"""Networks: graphs, robustness, generators and files."""
