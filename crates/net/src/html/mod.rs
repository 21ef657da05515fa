//! Results as a page: one file for a browser or a printer that needs nothing else. Pure.
//!
//! The figures are those of the screens and of JSON, from the same structures. [`markup`] lets no foreign text through
//! unescaped; [`scale`] and [`plot`] draw; [`thin`] keeps long tests short; [`measured`] shows one direction of a test,
//! [`conditions`] what was asked for. [`client`], [`sweep`] and [`advise`] are the pages.

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
