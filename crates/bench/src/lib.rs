//! Workload, rivals and figures.
