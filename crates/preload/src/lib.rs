//! LD_PRELOAD helper for hosts that cannot load extensions.
