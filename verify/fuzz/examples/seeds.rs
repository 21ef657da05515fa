//! Writes valid inputs into `fuzz/corpus` as a start for the fuzzer: `cargo run --example seeds DIR`.

use serde_json::{Value, json};
use standfast_format::{
    Attach, BlockWriter, FrameHeader, FrameKind, LogFileHeader, LogKind, RecordBuilder, StreamCrc,
    encode_frame, encode_ranges, incarnation_tag,
};
use standfast_types::{DatabaseId, IncarnationId, InstanceId, PageSize, Scn, WalPosition, WalSalts};
use standfast_views::{Cell, Rows};
use std::path::{Path, PathBuf};

struct Seeds {
    directory: PathBuf,
    written: usize,
}

impl Seeds {
    fn of(corpus: &Path, target: &str) -> std::io::Result<Seeds> {
        let directory = corpus.join(target);
        std::fs::create_dir_all(&directory)?;
        Ok(Seeds { directory, written: 0 })
    }

    fn put(&mut self, choice: u8, input: &[u8]) -> std::io::Result<()> {
        self.put_whole(&[&[choice][..], input].concat())
    }

    /// Writes an input of a target with one decoder.
    fn put_whole(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.written += 1;
        std::fs::write(self.directory.join(format!("seed-{:02}", self.written)), bytes)
    }
}

fn main() -> std::io::Result<()> {
    let corpus = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "fuzz/corpus".into()));
    transport(&mut Seeds::of(&corpus, "transport")?)?;
    net(&mut Seeds::of(&corpus, "net")?)?;
    redo(&mut Seeds::of(&corpus, "redo")?)?;
    log_files(&mut Seeds::of(&corpus, "log_files")?)?;
    instance_files(&mut Seeds::of(&corpus, "instance_files")?)?;
    control_requests(&mut Seeds::of(&corpus, "control_requests")?)?;
    marker(&mut Seeds::of(&corpus, "marker")?)?;
    segment(&mut Seeds::of(&corpus, "segment")?)?;
    http(&mut Seeds::of(&corpus, "http")?)
}

fn control_requests(seeds: &mut Seeds) -> std::io::Result<()> {
    let requests = [
        json!({"op": "status"}),
        json!({"op": "observe", "history": true, "standbys": true}),
        json!({"op": "view", "name": "v$database"}),
        json!({"op": "protect", "path": "/srv/app.db", "name": "app.db"}),
        json!({"op": "resolve", "name": "app.db", "keep": null}),
        json!({"op": "register-logfile", "path": "/srv/arch/1_5.log"}),
        json!({"op": "verify", "database": null, "repair": true, "bytes_per_s": 1_000_000}),
        json!({"op": "failover", "wait_s": 5, "immediate": true, "force": false}),
        json!({"op": "apply", "on": true, "no_delay": false}),
        json!({"op": "set-destination", "destination": {"name": "north", "address": "127.0.0.1:7400"}}),
        json!({"op": "protection-mode", "mode": null}),
        json!({"op": "issue-token", "name": "north", "never_primary": true, "ttl_s": 3600}),
    ];
    requests.iter().try_for_each(|request| seeds.put_whole(format!("{request}\n").as_bytes()))
}

fn marker(seeds: &mut Seeds) -> std::io::Result<()> {
    let right = "standfast-marker 2\ninstance=0123456789abcdef0123456789abcdef\nname=orders-a\n\
                 directory=/var/lib/standfast\nsegment=/dev/shm/s\ndatabase=3\npath=/srv/app.db\ndevice=2049\ninode=1180437\n";
    let changed = [
        ("marker 2", "marker 1"),
        ("marker 2", "marker 99"),
        ("segment=/dev/shm/s", "segment=../../etc/passwd"),
        ("database=3", "database=65536"),
        ("device=2049", "device=-1"),
        ("name=orders-a", "name=\u{1b}[2J"),
        ("path=/srv/app.db", "path="),
        ("inode=1180437\n", ""),
        ("inode=1180437", "inode=1180437\ninode=2"),
    ];
    seeds.put_whole(right.as_bytes())?;
    changed.iter().try_for_each(|(from, to)| seeds.put_whole(right.replace(from, to).as_bytes()))
}

fn segment(seeds: &mut Seeds) -> std::io::Result<()> {
    for length in [0, 1] {
        for (magic, version) in [(b"SFSHM001", 2_u64), (b"SFSHM001", u64::MAX), (b"XXSHM001", 2)] {
            let mut header = vec![length];
            header.extend(magic);
            header.extend(version.to_le_bytes());
            header.extend(b"of no instance!X");
            seeds.put_whole(&header)?;
            header.resize(4097, 0xff);
            seeds.put_whole(&header)?;
        }
    }
    Ok(())
}

fn http(seeds: &mut Seeds) -> std::io::Result<()> {
    let heads = [
        "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /metrics?token=abc HTTP/1.1\r\nHost: here:9000\r\nCookie: standfast_token=abc\r\n\r\n",
        "GET /?token=0123456789abcdef HTTP/1.1\r\nHost: [::1]:9000\r\n\r\n",
        "GET //evil?token=0123456789abcdef HTTP/1.1\r\n\r\n",
        "HEAD /healthz HTTP/1.0\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n",
        "POST /api/observation HTTP/1.1\r\nContent-Length: 5\r\nHost: 127.0.0.1\r\n\r\nhello",
        "GET /healthz HTTP/1.1\r\nCookie: a=b; standfast_token = x ; c\r\nhost: EVIL.example\r\n\r\n",
        "GET http://a/b HTTP/1.1\r\nX: \u{fffd}\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\n",
        "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}",
    ];
    heads.iter().try_for_each(|head| seeds.put_whole(head.as_bytes()))
}

fn transport(seeds: &mut Seeds) -> std::io::Result<()> {
    let incarnations = json!([{"number": 1, "id": "0101010101010101", "branch": 4096},
        {"number": 2, "id": "0202020202020202", "branch": 9000}]);
    let instance = "0123456789abcdef0123456789abcdef";
    let source =
        json!({"instance": instance, "name": "south", "role": "primary", "incarnations": incarnations});
    let standby =
        json!({"instance": instance, "name": "north", "role": "standby", "incarnations": incarnations});
    let log = json!({"sequence": 4, "first_scn": 5000, "time_us": 7, "first_record": 3});
    let positions = json!({"end": {"scn": 6000, "crc": 1}, "confirmed": {"scn": 5500, "crc": 2}, "applied": 5500,
        "log": log});
    let database = json!({"id": 3, "name": "a.db", "page_size": 4096, "path": "/srv/a.db"});
    let stopped = json!([{"database": "a.db", "applied": 5, "reason": "page 7 differs\nhint: copy"},
        {"database": "(all)", "applied": null, "reason": ""}]);
    let messages: [(FrameKind, u64, Value); 11] = [
        (FrameKind::Hello, 2, json!({"source": source, "mode": "sync_affirm", "net_timeout_ms": 30000})),
        (FrameKind::Hello, 2, json!({"standby": standby, "positions": positions})),
        (FrameKind::Hello, 2, json!({"standby": standby, "positions": null})),
        (FrameKind::Hello, 2, json!({"source": source, "from": 5500, "keep": 6000, "log": log})),
        (FrameKind::Refuse, 0, json!({"code": "diverged", "message": "other redo"})),
        (FrameKind::Request, 2, json!({"request": "snapshot", "name": "north"})),
        (FrameKind::Request, 2, json!({"request": "status"})),
        (FrameKind::Data, 1, json!({"source": source, "databases": [database]})),
        (FrameKind::Data, 4, json!({"database": 3, "scn": 9, "pages": 2})),
        (FrameKind::Done, 0, json!({"start": 9, "crc": 4, "log": log})),
        (FrameKind::Stopped, 2, stopped),
    ];
    let mut all = Vec::new();
    for (kind, a, message) in &messages {
        let (mut frame, payload) = (Vec::new(), message.to_string());
        encode_frame(FrameHeader::new(*kind, *a, 0, 0, 0), payload.as_bytes(), &mut frame);
        seeds.put(1, &frame)?;
        all.extend(frame);
    }
    for (kind, payload) in [
        (FrameKind::Redo, &b"redo"[..]),
        (FrameKind::Confirm, b""),
        (FrameKind::Switch, b""),
        (FrameKind::Ack, &[5; 16]),
    ] {
        encode_frame(FrameHeader::new(kind, 5000, 4700, 9, 6000), payload, &mut all);
    }
    seeds.put(0, &all)?;
    seeds.put(2 | 8, &all)
}

fn net(seeds: &mut Seeds) -> std::io::Result<()> {
    use standfast_net::plan::{Direction, Mode, Pace};
    use standfast_net::wire::{Answer, Answered, Header, Hello, Kind, Report, ReportKind, Status};
    use std::time::Duration;
    let pace = Pace {
        mode: Mode::Sync,
        length: 8192,
        random_length: true,
        delay: Duration::from_millis(7),
        random_delay: false,
        period: Some(Duration::from_micros(3)),
    };
    let hello = Hello {
        direction: Direction::FromServer,
        pace,
        write: true,
        zero_payload: false,
        amount: 12,
        buffer: 1 << 20,
        stream: 1,
        streams: 2,
        test: 99,
    };
    seeds.put(0, &hello.encode())?;
    let answer =
        Answer { status: Status::Refused, text: 5, receive_buffer: 6, receive_limit: 7, send_limit: 8 };
    seeds.put(0, &answer.encode())?;
    let kind = ReportKind::Summary;
    let report = Report {
        kind,
        errno: 28,
        sequence: 3,
        write_ns: 4,
        received: 5,
        disk_ns: 6,
        wait_ns: 7,
        receive_buffer: 8,
        writes: 9,
        waking_ns: 10,
    };
    seeds.put(0, &report.encode())?;
    let mut stream = vec![9];
    for (kind, length) in [(Kind::State, 64), (Kind::Data, 5), (Kind::Data, 0), (Kind::Finish, 0)] {
        let answered = Answered { latency_ns: 3, waking_ns: 2 };
        stream.extend(Header { kind, length, sequence: 4, answered }.encode());
        stream.extend(vec![7; length as usize]);
    }
    seeds.put(1, &stream)?;
    seeds.put(2, &large_packet())?;
    for words in [
        "-server\n-port=4000",
        "10.0.0.1\n-port=4000\n-mode=sync\n-duration=10s\n-length=100k\n-delay=5ms\n-sockbuf=2m\n-freq=1h/24h",
        "--MODE=ASYNC\n-port= 5\nhost\n-duration=5G\n10.1.0.0/16\nfd00::/8\n1.5ms\n100Mbit",
    ] {
        seeds.put(3, words.as_bytes())?;
    }
    seeds.put(4, b"SEQUENCE# MB SEC\n1 512 20\n2 512 7.5\n3 100 0\n")?;
    seeds.put(4, b"SEQUENCE#,BLOCKS,BLOCK_SIZE,FIRST_TIME,NEXT_TIME\n1,100,512,2026-11-21 10:00:00,2026-11-21 10:01:00\n")?;
    let change = json!({"set": {"links": [], "change": {"delay": 12_500_000, "rate": 1_000_000_000, "loss": 100,
        "queue": {"bytes": 100_000}}}});
    seeds.put(5, change.to_string().as_bytes())?;
    seeds.put(5, br#"{"stats":{"reset":true}}"#)
}

/// A packet from a TUN device: 250 bytes of TCP payload in segments of 100.
fn large_packet() -> Vec<u8> {
    let mut out = vec![1, 1, 40, 0, 100, 0, 20, 0, 16, 0];
    out.extend([0x45, 0, 1, 34, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2]);
    out.extend([0x1d, 0x24, 0xc0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x19, 1, 0, 0, 0, 0, 0]);
    out.extend([7; 250]);
    out
}

/// A stream with records of all kinds.
fn stream() -> Vec<u8> {
    let mut out = Vec::new();
    let (database, mut room) = (DatabaseId(3), Vec::new());
    if let Some(page_size) = PageSize::new(512) {
        RecordBuilder::attach(&mut out, &Attach { database, page_size, name: "a.db" });
    }
    let captured = WalPosition { salts: WalSalts(1, 2), frame: 5 };
    RecordBuilder::wal_generation(&mut out, database, captured, 9, true);
    RecordBuilder::baseline(&mut out, database, true);
    let mut change = RecordBuilder::change(&mut out, database);
    change.vector(1, None, &[3; 512], 7, &mut room);
    change.finish();
    let mut commit = RecordBuilder::commit(&mut out, database, 55, 9, 6);
    commit.vector(2, Some(&[3; 512]), &[[3; 256], [4; 256]].concat(), 8, &mut room);
    commit.finish();
    RecordBuilder::incarnation(&mut out, 2, IncarnationId([2; 8]), Scn(5000), 66);
    RecordBuilder::detach(&mut out, database);
    RecordBuilder::end_of_redo(&mut out, 77);
    out
}

fn header(kind: LogKind, first: Scn, next: Option<Scn>, sequence: u64) -> LogFileHeader {
    LogFileHeader {
        kind,
        block_bytes: 512,
        instance: InstanceId([1; 16]),
        incarnation: 1,
        incarnation_id: IncarnationId([9; 8]),
        sequence,
        first_scn: first,
        next_scn: next,
        first_time_us: 5,
        file_bytes: 4096,
        stream_crc: StreamCrc(0),
        first_record: 0,
        turn: 0,
    }
}

fn log_file(kind: LogKind, first: Scn, sequence: u64) -> Vec<u8> {
    let stream = stream();
    let next = (kind == LogKind::Archived).then_some(first + stream.len() as u64);
    let mut writer = BlockWriter {
        block_bytes: 512,
        number: 1,
        sequence,
        position: first,
        stream_crc: StreamCrc(0),
        next_record: first,
        incarnation_tag: incarnation_tag(IncarnationId([9; 8])),
        turn: 0,
        durable_before: 0,
    };
    let mut file = vec![0; 4096];
    header(kind, first, next, sequence).encode(&mut file[..512]);
    writer.write(&[&stream], first, &mut file[512..]);
    file
}

fn redo(seeds: &mut Seeds) -> std::io::Result<()> {
    seeds.put(0, &stream())?;
    seeds.put(1, &stream())?;
    let mut ranges = Vec::new();
    encode_ranges(&[1; 300], &[[1; 100], [2; 100], [1; 100]].concat(), &mut ranges);
    seeds.put(2, &ranges)?;
    seeds.put(3, &[[1; 100], [2; 100]].concat())?;
    seeds.put(3, b"abcdefgh_abXdefYh_")?;
    for choice in 4..7 {
        seeds.put(choice, &log_file(LogKind::Archived, Scn::START, 1)[..1024])?;
        seeds.put(choice, &log_file(LogKind::Standby, Scn::START, 1)[512..])?;
    }
    Ok(())
}

fn log_files(seeds: &mut Seeds) -> std::io::Result<()> {
    let (first, length) = (Scn::START, stream().len() as u64);
    let archived = log_file(LogKind::Archived, first, 1);
    let one = log_file(LogKind::Online, first + length, 2);
    let two = log_file(LogKind::Online, first + 2 * length, 3);
    seeds.put(0, &archived)?;
    seeds.put(1, &archived)?;
    seeds.put(1, &one)?;
    let mut cut = one.clone();
    cut[1024 + 44] = 1;
    seeds.put(1, &cut)?;
    seeds.put(2, &[&one[..], &two, &archived].concat())?;
    seeds.put(2, &[&two[..], &one, &archived].concat())?;
    seeds.put(2, &[&cut[..], &two].concat())?;
    seeds.put(3, &[&one[..], &two, &one, &two, &archived].concat())?;
    seeds.put(3, &[&one[..], &two, &[0; 4096], &two, &archived].concat())?;
    let damaged: Vec<u8> = one.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at == 700)).collect();
    seeds.put(0, &damaged)?;
    seeds.put(3, &[&damaged[..], &two, &one, &two].concat())
}

fn instance_files(seeds: &mut Seeds) -> std::io::Result<()> {
    let configuration = standfast_environment::config::settings::Config::default().to_toml();
    seeds.put(0, configuration.as_bytes())?;
    seeds
        .put(0, b"[[destination]]\nname = \"north\"\naddress = \"127.0.0.1:7400\"\nmode = \"fastsync\"\n")?;
    let id = "0123456789abcdef0123456789abcdef";
    let control = json!({"instance": id, "family": id, "role": "standby",
        "incarnations": [{"number": 1, "id": "0101010101010101", "branch": 4096, "time_us": 3}],
        "checkpoint": 5, "databases": [{"id": 1, "name": "a.db", "path": "/a.db", "page_size": 4096, "start_scn": 7}],
        "next_database": 2, "left_out": [[1, 4]], "replays": [[1, 5]], "detached": [[2, 6]], "directories": ["/srv"], "stale_members": ["redo2/online_1b.log"],
        "fenced": "by another", "clean": true});
    seeds.put(1, control.to_string().as_bytes())?;
    seeds.put(2, control.to_string().as_bytes())?;
    let mut journal = vec![0; 4096 + 5 * 32];
    for (nth, fact) in journal[4096..].chunks_mut(32).enumerate() {
        fact[4] = nth as u8;
        fact[6] = 1;
        fact[8] = 100;
        fact[24] = 3;
    }
    seeds.put(3, &journal)?;
    seeds.put(4, &journal)?;
    let marker = format!(
        "standfast-marker 2\ninstance={id}\nname=orders-a\ndirectory=/var/lib/standfast\nsegment=/dev/shm/s\n\
         database=3\npath=/srv/app.db\ndevice=2049\ninode=1180437\n"
    );
    seeds.put(5, marker.as_bytes())?;
    seeds.put(5, marker.replace("marker 2", "marker 1").as_bytes())?;
    for length in [0, 1] {
        let mut segment = vec![length];
        segment.extend(b"SFSHM001");
        segment.extend([2, 0, 0, 0, 0, 0, 0, 0]);
        segment.extend(b"of no instance!X");
        seeds.put(6, &segment)?;
    }
    seeds.put(
        7,
        b"SERVICE=north:7400 SYNC AFFIRM NET_TIMEOUT=30 COMPRESSION=LZ4 MAX_CONNECTIONS=5 DELAY=30 MANDATORY",
    )?;
    seeds.put(7, b"LOCATION=/archive OPTIONAL VALID_FOR=(ALL_LOGFILES,ALL_ROLES) ALTERNATE=west")?;
    seeds.put(8, br#"{"op":"status"}"#)?;
    seeds.put(8, br#"{"op":"protect","path":"/srv/app.db","name":"app.db"}"#)?;
    let row = vec![Cell::Null, Cell::Integer(-7), Cell::Real(0.5), Cell::Text("log file sync".into())];
    let rows = Rows { columns: vec!["a", "b", "c", "d"], rows: vec![row.clone(), row] };
    seeds.put(
        253,
        b"GET /metrics?token=abc HTTP/1.1\r\nHost: here:9000\r\nCookie: standfast_token=abc\r\n\r\n",
    )?;
    seeds.put(255, &rows.encode())
}
