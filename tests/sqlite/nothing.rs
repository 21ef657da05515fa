//! Nothing: the packages around it are there for their dependencies.
