//! Wires the stations of one host together.
