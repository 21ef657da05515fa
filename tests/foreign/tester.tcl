# Stands in for the tester.tcl of SQLite's own tests where SQLite is the package `sqlite3` of an ordinary tclsh: what their scripts
# use beside the command sqlite3. What only SQLite's test program has is missing, and fails on stock SQLite too. For each test
# a line is printed, `ok FILE TEST` or `failed FILE TEST`; what a failed one gave goes to standard error. A script sources this
# file at its beginning; the rest of the script is read and run here, so that an error between two tests is not its end.

if {[info exists ::foreign_file]} {return}
package require sqlite3
set ::testdir [file dirname $argv0]
set ::foreign_file [file rootname [file tail $argv0]]
set ::foreign_whole 1
set ::sqlite_pending_byte 0x40000000
set ::AUTOVACUUM 0
set ::TEMP_STORE 1
foreach {limit value} {
  LENGTH 1000000000 ATTACHED 10 COLUMN 2000 SQL_LENGTH 1000000 COMPOUND_SELECT 500 EXPR_DEPTH 1000 VDBE_OP 250000000
  FUNCTION_ARG 127 LIKE_PATTERN_LENGTH 50000 VARIABLE_NUMBER 250000 PAGE_SIZE 65536 TRIGGER_DEPTH 1000 WORKER_THREADS 8
  DEFAULT_PAGE_SIZE 4096 PAGE_COUNT 1073741823
} {
  set ::SQLITE_MAX_$limit $value
}
# Counted only by SQLite's test program.
foreach counter {search sort like interrupt open_file found xferopt current_time} {set ::sqlite_${counter}_count 0}
set ::sqlite_current_time 0
array set ::G {}

# Every connection has some of the functions of the test program; what they return is only compared with itself.
rename sqlite3 foreign_sqlite3
proc sqlite3 {args} {
  set result [uplevel [list foreign_sqlite3 {*}$args]]
  set db [lindex $args 0]
  if {[llength $args] > 1 && [llength [info commands $db]]} {
    $db function md5sum foreign_join
    $db function randstr foreign_randstr
  }
  return $result
}
proc foreign_join {args} {join $args |}
proc foreign_randstr {least most} {
  set ::foreign_random [expr {([incr ::foreign_random] * 1103515245 + 12345) & 0x7fffffff}]
  set text [string repeat [format %08x $::foreign_random] [expr {$most / 8 + 1}]]
  string range $text 0 [expr {$least + $::foreign_random % ($most - $least + 1) - 1}]
}
proc md5 {text} {return $text}

# Other processes of a test (lock_common.tcl) are started without a tester: the command is found by the index of a library.
set ::env(TCLLIBPATH) [list [file normalize library]]
file mkdir library
set index [open library/tclIndex w]
puts $index "# Tcl autoload index file, version 2.0"
puts $index {set auto_index(sqlite3) {package require sqlite3}}
close $index

# Features that Debian's SQLite lacks; all others count as present.
set ::foreign_lacking {
  8_3_names api_armor atomicwrite autovacuum_default bloblit_off codec crashtest cursorhints debug default_autovacuum
  default_ckptfullfsync direct_read dirsync_off fast_secure_delete fts1 fts2 has_codec hiddencolumns icu icu_collations
  lock_proxy_pragmas long_double_off malloc_usable_size mem3 mem5 memorymanage multiplex_ext_overwrite mutex_noop null_trim
  offset_sql_func oversize_cell_check prefer_proxy_locking preupdate_off rbu rowid32 scanstatus sqllog stat4 uri_00_error
  userauth win32malloc wsd like_match_blobs
}

proc foreign_result {ok name got expected} {
  # Names of a few tests end with a checksum or a count of random rows.
  regsub -- {-\d{4,}$} $name {} name
  if {$ok} {
    puts stdout "ok $::foreign_file [string map {\n { }} $name]"
  } else {
    puts stdout "failed $::foreign_file [string map {\n { }} $name]"
    puts stderr "$::foreign_file $name: expected {[string range $expected 0 400]}, got {[string range $got 0 400]}"
  }
  flush stdout
}

# Whether a result is the expected one: literally, /a regular expression/, *a glob* or #/numbers or ranges/; ~ turns it round.
proc foreign_matches {got expected} {
  if {[string match {~?*} $expected] && [regexp {^~[/*].*[/*]$} $expected]} {
    return [expr {![foreign_matches $got [string range $expected 1 end]]}]
  }
  if {[regexp {^#/(.*)/$} $expected -> numbers]} {
    if {[llength $got] != [llength $numbers]} {return 0}
    foreach value $got wanted $numbers {
      if {[regexp {^(-?\d+)\.\.(-?\d+)$} $wanted -> low high]} {
        if {$value < $low || $value > $high} {return 0}
      } elseif {abs($value - $wanted) > 0.1 * abs($wanted)} {
        return 0
      }
    }
    return 1
  }
  if {[regexp {^/(.*)/$} $expected -> pattern]} {
    if {[string match {\**} $pattern]} {return [string match $pattern $got]}
    return [regexp [string map {# {[-0-9.]+}} $pattern] $got]
  }
  if {[regexp {^\*.*\*$} $expected]} {return [string match $expected $got]}
  return [string equal $got $expected]
}

proc fix_testname {variable} {
  upvar $variable name
  if {[info exists ::testprefix] && [string is digit -strict [string index $name 0]]} {set name $::testprefix-$name}
}

proc do_test {name script expected} {
  fix_testname name
  if {[catch {uplevel #0 "$script;\n"} got]} {
    foreign_result 0 $name "error: $got" $expected
  } else {
    foreign_result [expr {![catch {foreign_matches $got $expected} same] && $same}] $name $got $expected
  }
}

# Arguments of the tests of one statement may begin with -db CONNECTION.
proc do_execsql_test {args} {
  set db db
  if {[lindex $args 0] eq "-db"} {
    set db [lindex $args 1]
    set args [lrange $args 2 end]
  }
  lassign $args name sql expected
  fix_testname name
  # A result is a list; a pattern is none.
  if {![regexp {^[~#]?/.*/$} $expected]} {set expected [list {*}$expected]}
  uplevel do_test [list $name] [list [list execsql $sql $db]] [list $expected]
}
proc do_catchsql_test {name sql expected} {
  fix_testname name
  uplevel do_test [list $name] [list [list catchsql $sql]] [list $expected]
}
proc do_timed_execsql_test {args} {uplevel do_execsql_test $args}
# How a plan is shown is not the matter here.
proc do_eqp_test {args} {}
proc do_realnum_test {name script expected} {
  set round {regsub -all {(\d\.\d{0,13})\d*} %s {\1}}
  uplevel do_test [list $name] [list "[format $round "\[$script\]"]"] [list [eval [format $round [list $expected]]]]
}
proc do_filepath_test {name script expected} {
  uplevel do_test [list $name] [list $script] [list $expected]
}
# do_select_tests PREFIX ?-OPTION VALUE...? {NAME SQL RESULT...}
proc do_select_tests {prefix args} {
  array set options {-count 0 -errorformat {} -repair {} -tclquery {} -query {}}
  array set options [lrange $args 0 end-1]
  foreach {name sql expected} [uplevel subst -nocommands -nobackslashes [list [lindex $args end]]] {
    set name $prefix.$name
    if {$options(-tclquery) ne ""} {
      uplevel do_test [list $name] [list [string map [list %SQL% $sql] $options(-tclquery)]] [list $expected]
    } elseif {$options(-errorformat) ne ""} {
      set message [format $options(-errorformat) {*}$expected]
      uplevel do_catchsql_test [list $name] [list $sql] [list [list 1 [string trim $message]]]
    } else {
      uplevel do_execsql_test [list $name] [list $sql] [list $expected]
    }
    if {$options(-repair) ne ""} {uplevel $options(-repair)}
  }
}

proc execsql {sql {db db}} {uplevel [list $db eval $sql]}
proc catchsql {sql {db db}} {
  set code [catch {uplevel [list $db eval $sql]} message]
  list $code $message
}
proc execsql2 {sql} {
  set result {}
  db eval $sql row {
    foreach column $row(*) {lappend result $column $row($column)}
  }
  return $result
}
proc integrity_check {name {db db}} {
  do_test $name [list execsql {PRAGMA integrity_check} $db] ok
}
proc verify_ex_errcode {args} {}
proc extra_schema_checks {args} {}
proc omit_test {args} {}
proc fail_test {name} {foreign_result 0 $name {} {}}
proc set_test_counter {args} {return 0}
proc incr_ntest {} {}
proc output1 {args} {}
proc output2 {args} {}
proc presql {} {}
proc permutation {} {}
proc isquick {} {return 0}
proc verbose {} {return 0}
proc do_not_use_codec {} {}
proc nonzero_reserved_bytes {} {return 0}
proc working_64bit_int {} {return 1}
proc atomic_batch_write {path} {return 0}
proc sqlite3_connection_pointer {db} {return $db}
# Settings that are of no account here.
foreach name {
  sqlite3_memdebug_settitle sqlite3_extended_result_codes sqlite3_db_config sqlite3_test_control optimization_control
  test_set_config_pagecache test_restore_config_pagecache autoinstall_test_functions sqlite3_soft_heap_limit sqlite3_shutdown
  sqlite3_initialize sqlite3_config_uri database_may_be_corrupt database_never_corrupt sqlite3_enable_shared_cache
  add_test_function register_dbstat_vtab do_malloc_test do_faultsim_test do_ioerr_test
} {
  proc $name {args} {return 0}
}

proc capable {expression} {
  regsub -all {[a-z_0-9]+} $expression {[foreign_has &]} expression
  expr $expression
}
proc foreign_has {feature} {
  if {[string is integer -strict $feature]} {return $feature}
  expr {$feature ni $::foreign_lacking}
}
proc ifcapable {expression script {else {}} {otherwise {}}} {
  set code [catch {uplevel [expr {[capable $expression] ? $script : $otherwise}]} result]
  return -code $code $result
}

proc normalize_list {list} {
  set result {}
  foreach element $list {lappend result $element}
  return $result
}
proc get_pwd {} {pwd}
proc is_relative_file {file} {expr {[file pathtype $file] eq "relative"}}
proc test_pwd {separator} {return [pwd]$separator}
proc delete_file {args} {file delete {*}$args}
proc forcedelete {args} {file delete -force {*}$args}
proc copy_file {from to} {file copy $from $to}
proc forcecopy {from to} {file copy -force $from $to}

proc foreign_remove {path} {
  foreach ending {{} -journal -wal -shm} {forcedelete $path$ending}
}
proc reset_db {} {
  catch {db close}
  foreign_remove test.db
  sqlite3 db test.db
  set ::DB db
}
proc db_delete_and_reopen {{path test.db}} {
  catch {db close}
  foreach file [glob -nocomplain test.db* sv_test.db*] {
    # The marker of a protected database goes when its protection ends.
    if {![string match *-standfast $file]} {forcedelete $file}
  }
  sqlite3 db $path
}
proc faultsim_delete_and_reopen {{path test.db}} {db_delete_and_reopen $path}
proc drop_all_tables {{db db}} {
  set enforced [$db one {PRAGMA foreign_keys}]
  $db eval {PRAGMA foreign_keys = OFF}
  foreach {index name file} [$db eval {PRAGMA database_list}] {
    set schema [expr {$index == 1 ? "sqlite_temp_master" : "\"$name\".sqlite_master"}]
    set objects "SELECT name, type FROM $schema WHERE type IN ('table', 'view') AND substr(name, 1, 7) <> 'sqlite_'"
    foreach {table type} [$db eval $objects] {
      $db eval "DROP $type \"$name\".\"$table\""
    }
  }
  $db eval "PRAGMA foreign_keys = $enforced"
}
proc drop_all_indexes {{db db}} {
  foreach name [$db eval {SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL}] {$db eval "DROP INDEX $name"}
}
proc delete_all_data {} {
  db eval {SELECT name FROM sqlite_master WHERE type = 'table'} {db eval "DELETE FROM '[string map {' ''} $name]'"}
}

# Something that changes with everything in a database.
proc cksum {{db db}} {
  set all {}
  foreach schema {sqlite_master sqlite_temp_master} {lappend all [$db eval "SELECT name, sql FROM $schema ORDER BY 1"]}
  foreach table [$db eval {SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1}] {
    lappend all [$db eval "SELECT * FROM \"$table\" ORDER BY 1"]
  }
  foreach pragma {default_cache_size user_version} {lappend all [$db eval "PRAGMA $pragma"]}
  return $all
}
proc dbcksum {db schema} {
  set all [$db eval "SELECT name, sql FROM \"$schema\".sqlite_master ORDER BY 1"]
  foreach table [$db eval "SELECT name FROM \"$schema\".sqlite_master WHERE type = 'table' ORDER BY 1"] {
    lappend all [$db eval "SELECT * FROM \"$schema\".\"$table\""]
  }
  return $all
}
proc allcksum {{db db}} {
  set all {}
  foreach {index name file} [$db eval {PRAGMA database_list}] {lappend all $name [dbcksum $db $name]}
  return $all
}

proc wal_is_capable {} {return 1}
proc wal_is_wal_mode {} {return 0}
proc wal_set_journal_mode {{db db}} {}
proc wal_check_journal_mode {args} {}

proc finish_test {} {
  catch {db close}
  foreign_result $::foreign_whole {as a whole} {} {}
  exit 0
}

reset_db

# The rest of the script, command by command.
set foreign_script [open $argv0]
while {[gets $foreign_script foreign_line] >= 0 && ![string match *source*tester.tcl* $foreign_line]} {}
set foreign_command {}
while {[gets $foreign_script foreign_line] >= 0} {
  append foreign_command $foreign_line \n
  if {![info complete $foreign_command]} {continue}
  set foreign_code [catch $foreign_command foreign_message]
  set foreign_command {}
  if {$foreign_code == 1} {
    puts stderr "$foreign_file: between tests: [string range $foreign_message 0 400]"
    set foreign_whole 0
  } elseif {$foreign_code != 0} {
    break
  }
}
finish_test
