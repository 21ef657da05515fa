//! The loadable extension libstandfast.so.
