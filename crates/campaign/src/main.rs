//! Kill and power-loss campaigns.

fn main() {}
