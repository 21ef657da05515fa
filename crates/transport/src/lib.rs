//! Sender and receiver of redo.
