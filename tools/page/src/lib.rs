//! Reports as pages: one file for a browser or a printer that needs no other file. Pure.
//!
//! [`markup`] escapes all foreign text; [`page`] has the parts of a page, [`scale`] and [`plot`] draw; [`units`] and
//! [`words`] give sizes, times and rates their form.

pub mod markup;
pub mod page;
pub mod plot;
pub mod scale;
pub mod units;
pub mod words;
