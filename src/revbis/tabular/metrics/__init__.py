"""The exact metrics, one file each: a function for users and the record `METRIC`."""
