"""Many runs from one grid: on this machine's cores or on a Ray cluster."""
