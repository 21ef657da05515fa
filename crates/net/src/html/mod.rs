//! Results as a page: one file for a browser or a printer that needs no other file. Pure.
//!
//! The figures are those of the screens and of JSON, from the same structures. [`markup`] escapes all foreign text;
//! [`scale`] and [`plot`] draw; [`thin`] shortens long tests; [`measured`] shows one direction of a test,
//! [`conditions`] what was requested. [`client`], [`sweep`] and [`advise`] are the pages.

pub mod advise;
pub mod client;
pub mod conditions;
pub mod markup;
pub mod measured;
pub mod page;
pub mod plot;
pub mod scale;
pub mod sweep;
pub mod thin;
pub mod words;
