//! Each function taken from SQLite's table is the one of its name.

use crate::support::{API, load};
use rusqlite::ffi;
use standfast_sqlite_vfs::Host;
use std::sync::atomic::Ordering::SeqCst;

#[test]
fn each_api_table_entry_is_the_named_function() {
    load();
    // SAFETY: the table that SQLite passed to an initialiser; it is constant.
    let host = unsafe { Host::from_api(API.load(SeqCst)) }.unwrap();
    let pairs: [(&str, usize, usize); 21] = [
        (
            "libversion_number",
            host.libversion_number as usize,
            ffi::sqlite3_libversion_number as *const () as usize,
        ),
        ("vfs_find", host.vfs_find as usize, ffi::sqlite3_vfs_find as *const () as usize),
        ("vfs_register", host.vfs_register as usize, ffi::sqlite3_vfs_register as *const () as usize),
        ("malloc", host.malloc as usize, ffi::sqlite3_malloc as *const () as usize),
        ("free", host.free as usize, ffi::sqlite3_free as *const () as usize),
        ("log", host.log as usize, ffi::sqlite3_log as *const () as usize),
        ("auto_extension", host.auto_extension as usize, ffi::sqlite3_auto_extension as *const () as usize),
        (
            "create_function_v2",
            host.create_function_v2 as usize,
            ffi::sqlite3_create_function_v2 as *const () as usize,
        ),
        (
            "context_db_handle",
            host.context_db_handle as usize,
            ffi::sqlite3_context_db_handle as *const () as usize,
        ),
        ("result_text", host.result_text as usize, ffi::sqlite3_result_text as *const () as usize),
        ("result_int64", host.result_int64 as usize, ffi::sqlite3_result_int64 as *const () as usize),
        ("result_null", host.result_null as usize, ffi::sqlite3_result_null as *const () as usize),
        ("result_double", host.result_double as usize, ffi::sqlite3_result_double as *const () as usize),
        (
            "create_module_v2",
            host.create_module_v2 as usize,
            ffi::sqlite3_create_module_v2 as *const () as usize,
        ),
        ("declare_vtab", host.declare_vtab as usize, ffi::sqlite3_declare_vtab as *const () as usize),
        ("prepare_v2", host.prepare_v2 as usize, ffi::sqlite3_prepare_v2 as *const () as usize),
        ("step", host.step as usize, ffi::sqlite3_step as *const () as usize),
        ("column_text", host.column_text as usize, ffi::sqlite3_column_text as *const () as usize),
        ("finalize", host.finalize as usize, ffi::sqlite3_finalize as *const () as usize),
        ("value_text", host.value_text as usize, ffi::sqlite3_value_text as *const () as usize),
        ("file_control", host.file_control as usize, ffi::sqlite3_file_control as *const () as usize),
    ];
    for (name, from_table, by_name) in pairs {
        assert_eq!(from_table, by_name, "sqlite3_{name}");
    }
}

#[test]
fn too_old_sqlite_host_is_refused_with_both_versions() {
    unsafe extern "C" fn old() -> std::ffi::c_int {
        3_034_001
    }
    load();
    // SAFETY: as above.
    let host = unsafe { Host::from_api(API.load(SeqCst)) }.unwrap();
    let message = standfast_sqlite_vfs::install(Host { libversion_number: old, ..host }).unwrap_err();
    assert!(message.contains("3.35.0") && message.contains("3.34.1"), "{message}");
    // SAFETY: null is the table of no host.
    assert!(unsafe { Host::from_api(std::ptr::null()) }.is_err());
}
