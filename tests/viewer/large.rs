//! A reconcile that is far larger than what the sidecar's viewer may hold in memory.

use std::{
    fmt::Write as _,
    fs, future,
    io::Write as _,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    time::Instant,
};

use reqwest::{Method, Response};
use spanplane::{
    archive::{Compression, ObjectWriter},
    line::Line,
    memory::{Held, SharedMemory, memory_limit},
    record::RecordKind,
    serve::Sidecar,
    viewer::Limits,
};

use crate::{
    setup::{Answer, Served},
    support::{
        Home, PATIENCE, folder_archive, message,
        program::{Place, Running},
        stop,
    },
};

const MIB: u64 = 1 << 20;
const STEPS: i32 = 5;
const TRACE: &str = "0192aaaa-0000-7000-8000-00000000001a";

/// So many resources, with so many bytes each.
fn state(resources: usize, bytes: usize) -> String {
    let mut state = String::with_capacity(resources * (bytes + 160));
    for number in 0..resources {
        let before = if number == 0 { "" } else { "," };
        write!(
            state,
            r#"{before}"bucket-{number:05}":{{"resource":{{"apiVersion":"v1","kind":"Bucket","metadata":{{"name":"b-{number}"}},"spec":{{"n":{number},"text":"{:x>bytes$}"}}}}}}"#,
            number * 7919
        )
        .unwrap();
    }
    format!(r#"{{"resources":{{{state}}}}}"#)
}

/// Plays a small reconcile, and makes the payloads of its first steps this large in its object;
/// returns the object's text.
async fn play_large(home: &Home, steps: usize, resources: usize, bytes: usize) -> (Line, String) {
    let payloads = |state: &str| {
        [
            (
                RecordKind::Request,
                format!(r#"{{"observed":{state},"desired":{{}}}}"#),
            ),
            (
                RecordKind::Response,
                format!(r#"{{"desired":{state},"results":[]}}"#),
            ),
        ]
    };
    let small = payloads(&state(1, 1));
    let calls = (0..STEPS).flat_map(|step| small.iter().map(move |small| (step, small)));
    let records: Vec<_> = calls
        .map(|(step, (kind, payload))| message(TRACE, step, *kind, payload))
        .collect();
    home.play(&[], &records).await;
    let (key, mut text) = home.documents().await.pop_first().unwrap();
    for ((_, small), (_, large)) in small.iter().zip(payloads(&state(resources, bytes))) {
        assert!(text.contains(small), "{small} is not in {text}");
        text = text.replacen(small, &large, steps);
    }
    let mut object = ObjectWriter::new(Compression::Zstd, text.len(), Vec::new()).unwrap();
    object.write_all(text.as_bytes()).unwrap();
    fs::write(store(home).join(&key), object.finish().unwrap()).unwrap();
    let served = Served::over(folder_archive(&store(home))).await;
    let line = served.lines().await.remove(0);
    assert_eq!(line.object.key, key);
    (line, text)
}

fn store(home: &Home) -> PathBuf {
    home.data_dir().join("store")
}

/// What is said instead of what does not fit.
fn assert_is_too_large(answer: &Answer, key: &str) {
    let text = answer.text();
    assert!(
        text.contains("more memory than the viewer may use"),
        "{text}"
    );
    let download = format!("/raw?key={key}&pointer=&download=yes");
    let links = answer.links();
    assert!(links.contains(&download), "{download} is not in {links:?}");
    assert!(answer.body.len() < 256 * 1024);
}

/// A page that is there. What takes too long on a busy machine is asked for again.
async fn patiently(served: &Served, path: &str) -> Answer {
    let begun = Instant::now();
    loop {
        let answer = served.get(path).await;
        match answer.status.as_u16() {
            200 => return answer,
            503 if begun.elapsed() < PATIENCE => {}
            status => panic!("{path}: {status}: {}", answer.text()),
        }
    }
}

#[tokio::test]
async fn what_does_not_fit_says_so_and_can_be_opened_by_parts_and_downloaded() {
    let home = Home::new();
    let (line, document) = play_large(&home, 1, 6_000, 1_500).await;
    let limits = Limits::inside_sidecar(Some(128 * MIB));
    let served = Served::within(folder_archive(&store(&home)), limits).await;
    let page = async |path: String| patiently(&served, &path).await;
    let key = &line.object.key;

    // What the line says is shown all the same.
    let trace = page(format!("/trace/{TRACE}")).await;
    assert_is_too_large(&trace, key);
    assert!(trace.text().contains("step-4"), "{}", trace.text());
    let step = page(format!("/trace/{TRACE}/step/0")).await;
    assert_is_too_large(&step, key);
    let whole = page(format!("/raw?key={key}&pointer=&download=yes")).await;
    assert!(whole.body == document, "{} bytes", whole.body.len());
    let disposition = whole.header("content-disposition");
    assert!(disposition.starts_with("attachment; filename=\""));

    // One resource of it fits, and so do the other steps.
    let story = page(format!("/trace/{TRACE}/resource?name=bucket-00042")).await;
    assert!(story.text().contains("bucket-00042"), "{}", story.text());
    page(format!(
        "/trace/{TRACE}/step/0/change?resource=bucket-00042"
    ))
    .await;
    let step = page(format!("/trace/{TRACE}/step/4")).await;
    assert!(step.text().contains("bucket-00000"), "{}", step.text());

    // Part by part, down to what fits.
    let root = page(format!("/open?key={key}&pointer=")).await;
    let request = format!("/open?key={key}&pointer=/steps/0/request");
    assert!(root.links().contains(&request), "{:?}", root.links());
    let payload = page(request.clone()).await;
    assert!(payload.text().contains("too large for a page"));
    let download = format!("/raw?key={key}&pointer=/steps/0/request&download=yes");
    assert!(payload.links().contains(&download), "{:?}", payload.links());
    let observed = format!("{request}/observed");
    assert!(payload.links().contains(&observed), "{:?}", payload.links());
    let resources = format!("{observed}/resources");
    let parts = page(format!("{resources}&from=500")).await;
    let text = parts.text();
    assert!(text.contains("501 to 1,000 of 6,000"), "{text}");
    let one = format!("{resources}/bucket-00777");
    assert!(parts.links().contains(&one), "{:?}", parts.links());
    let one = page(one).await;
    assert!(one.text().contains("name : b-777"), "{}", one.text());

    // A payload of any size is what was stored, also as a call.
    let request = document.split_once("\"request\":").unwrap().1;
    for query in ["", "&as=call"] {
        let raw = format!("/raw?key={key}&pointer=/steps/0/request{query}");
        let raw = page(raw).await;
        assert!(raw.body.len() > 8 << 20 && request.starts_with(&raw.body));
        assert_eq!(raw.header("content-type"), "application/json");
    }
}

#[tokio::test]
async fn the_sidecar_gives_its_viewer_a_share_of_its_memory() {
    let home = Home::new();
    let (line, _) = play_large(&home, 1, 6_000, 1_500).await;
    let mut settings = home.settings(&["--viewer-address=127.0.0.1:0"]);
    settings.memory_limit = Some(128 * MIB);
    let sidecar = Sidecar::start(settings).await.unwrap();
    let served = Served::at(&sidecar.viewer_address().unwrap().to_string());
    let trace = patiently(&served, &format!("/trace/{TRACE}")).await;
    assert_is_too_large(&trace, &line.object.key);
    stop(sidecar).await;
}

/// Memory that somebody else has.
#[derive(Debug)]
struct Taken;

impl SharedMemory for Taken {
    fn hold_payload(&self, _: usize) -> Option<Held> {
        None
    }

    fn hold(&self, bytes: usize) -> Pin<Box<dyn Future<Output = Held> + Send>> {
        if bytes > 1 << 20 {
            return Box::pin(future::pending());
        }
        Box::pin(future::ready(Held::untold()))
    }
}

#[tokio::test]
async fn a_page_that_gets_no_memory_says_so_and_offers_the_document() {
    let home = Home::new();
    let observed = format!(r#"{{"observed":{}}}"#, state(100, 1_500));
    let request = message(TRACE, 0, RecordKind::Request, &observed);
    let response = message(TRACE, 0, RecordKind::Response, r#"{"desired":{}}"#);
    home.play(&[], &[request, response]).await;
    let (key, document) = home.documents().await.pop_first().unwrap();
    let served = Served::sharing(folder_archive(&store(&home)), Arc::new(Taken)).await;
    let download = format!("/raw?key={key}&pointer=&download=yes");
    for (path, status) in [
        (format!("/trace/{TRACE}"), 200),
        (format!("/trace/{TRACE}/step/0"), 200),
        (format!("/trace/{TRACE}/resource?name=bucket-00042"), 503),
        (format!("/open?key={key}&pointer=/steps/0/request"), 503),
    ] {
        let answer = served.get(&path).await;
        assert_eq!(answer.status.as_u16(), status, "{path}");
        let text = answer.text();
        assert!(
            text.contains("has no memory left to show"),
            "{path}: {text}"
        );
        assert!(answer.links().contains(&download), "{path}");
    }
    assert_eq!(served.page(&download).await.body, document);
    // The list needs none.
    served.page("/").await;
}

#[tokio::test]
async fn downloads_that_nobody_reads_leave_the_others_a_page_that_says_so() {
    let home = Home::new();
    let (line, document) = play_large(&home, 5, 3_000, 1_000).await;
    let served = Served::over(folder_archive(&store(&home))).await;
    let raw = format!("/raw?key={}&pointer=", line.object.key);
    let mut unread = Vec::new();
    for _ in 0..2 {
        unread.push(download(&served, &raw).await);
    }
    let answer = served.get(&raw).await;
    assert_eq!(answer.status.as_u16(), 503, "{}", answer.text());
    assert!(answer.text().contains("Too many downloads at once"));
    // Pages are not downloads.
    served.page("/").await;
    for response in unread {
        assert_eq!(response.bytes().await.unwrap().len(), document.len());
    }
    patiently(&served, &raw).await;
}

/// What is not of payloads: two downloads and a page that decompress with 8 MiB each, pages that
/// wait for their clients, and what the allocator keeps.
const BESIDE: u64 = 40 * MIB;

/// The most memory that a process ever had.
fn peak_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.unwrap().split_whitespace().next().unwrap();
    1024 * kib.parse::<u64>().unwrap()
}

/// Begins a download.
async fn download(served: &Served, path: &str) -> Response {
    let begun = Instant::now();
    loop {
        let response = served.ask(Method::GET, path).send().await.unwrap();
        match response.status().as_u16() {
            200 => return response,
            503 if begun.elapsed() < PATIENCE => {}
            status => panic!("{path}: {status}"),
        }
    }
}

/// A program over this store, and its viewer.
async fn start(place: &Place, store: &Path) -> (Running, Served) {
    let store = format!("--store=file://{}", store.display());
    let flags = ["serve", &store, "--viewer-address=127.0.0.1:0"];
    let running = place.start(&flags).await;
    let served = Served::at(running.listening("viewer"));
    (running, served)
}

#[tokio::test]
async fn a_document_of_48_mib_takes_no_more_than_the_viewers_share() {
    let home = Home::new();
    let (line, document) = play_large(&home, 5, 10_000, 400).await;
    assert!(document.len() > 48 << 20, "{} bytes", document.len());
    let place = Place::new();
    let (running, served) = start(&place, &store(&home)).await;
    served.page("/").await;
    let pid = running.child.id().unwrap();
    let before = peak_bytes(pid);

    let key = &line.object.key;
    let pages = [
        format!("/trace/{TRACE}"),
        format!("/trace/{TRACE}/resource?name=bucket-00042"),
        format!("/trace/{TRACE}/step/4"),
        format!("/trace/{TRACE}/step/4?view=previous"),
        format!("/trace/{TRACE}/step/4/change?resource=bucket-00042"),
        format!("/open?key={key}&pointer="),
        format!("/open?key={key}&pointer=/steps/0/request"),
        format!("/open?key={key}&pointer=/steps/0/request&q=b-777"),
        format!("/open?key={key}&pointer=/steps/0/request/observed/resources"),
    ];
    let raw = format!("/raw?key={key}&pointer=");
    let [read, unread] = [download(&served, &raw).await, download(&served, &raw).await];
    let looking = async {
        for _ in 0..2 {
            let answers = pages.iter().map(|path| served.get(path));
            for (answer, path) in futures_util::future::join_all(answers)
                .await
                .iter()
                .zip(&pages)
            {
                // A build like this on a busy machine may need longer than a page may take.
                let status = answer.status.as_u16();
                assert!([200, 503].contains(&status), "{path}: {}", answer.text());
            }
        }
    };
    let ((), read) = tokio::join!(looking, read.bytes());
    assert!(read.unwrap() == document.as_bytes());
    let unread = unread.bytes().await.unwrap();
    assert!(unread == document.as_bytes());

    let grown = peak_bytes(pid) - before;
    let share = Limits::inside_sidecar(memory_limit()).bytes();
    println!("{} MiB of a share of {}", grown / MIB, share / MIB);
    assert!(grown < share + BESIDE, "it grew by {} MiB", grown / MIB);
    let (status, ..) = running.terminate().await;
    assert!(status.success(), "{status}");
}
