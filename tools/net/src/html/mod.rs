//! Results as a page. Pure.
//!
//! The figures are those of the screens and of JSON, from the same structures. [`page`] has the parts that the pages of
//! all tests have; [`thin`] shortens long tests; [`measured`] shows one direction of a test, [`conditions`] what was
//! requested. [`client`], [`sweep`] and [`advise`] are the pages.

pub mod advise;
pub mod client;
pub mod conditions;
pub mod measured;
pub mod page;
pub mod sweep;
pub mod thin;
pub mod words;
