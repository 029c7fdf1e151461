//! Who may look, and at what.

use reqwest::{Method, StatusCode};

use crate::{
    setup::{Answer, Served},
    support::{Home, capture},
};

const TOKEN: &str = "correct-horse-battery";

#[tokio::test]
async fn a_page_elsewhere_cannot_look_in_by_another_name() {
    let served = Served::of_captures(&[]).await;
    let ask = async |host: &str, path: &str| {
        let request = served.ask(Method::GET, path).header("host", host);
        Answer::of(request.send().await.unwrap()).await
    };
    for path in ["/", "/raw?key=x", "/assets/x"] {
        let answer = ask("rebound.evil.example:8686", path).await;
        assert_eq!(answer.status, StatusCode::MISDIRECTED_REQUEST, "{path}");
        assert!(!answer.body.contains("evil.example"), "{}", answer.body);
    }
    assert_eq!(ask("localhost:8686", "/").await.status, StatusCode::OK);
    // A probe has no name to ask for.
    assert_eq!(ask("10.0.0.1", "/healthz").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_token_is_asked_for_and_brought_once() {
    let home = Home::new();
    home.play(&[], &capture("dropper")).await;
    let served = Served::with_token(home.archive(), TOKEN).await;
    for path in [
        "/",
        "/rows",
        "/trace/last",
        "/raw?key=x",
        "/?token=wrong-horse-battery",
    ] {
        let answer = served.get(path).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path}");
        assert!(!answer.body.contains("BucketSet"), "{path}");
        assert_eq!(answer.header("www-authenticate"), "Bearer");
    }
    assert_eq!(served.get("/healthz").await.status, StatusCode::OK);

    let answer = served.get(&format!("/?kind=BucketSet&token={TOKEN}")).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
    assert_eq!(answer.header("location"), "/?kind=BucketSet");
    let cookie = answer.header("set-cookie");
    assert!(
        cookie.contains("HttpOnly") && !cookie.contains(TOKEN),
        "{cookie}"
    );
    let cookie = cookie.split(';').next().unwrap();
    for (name, value) in [
        ("cookie", cookie),
        ("authorization", &format!("Bearer {TOKEN}")),
    ] {
        let request = served.ask(Method::GET, "/").header(name, value);
        let answer = Answer::of(request.send().await.unwrap()).await;
        assert_eq!(answer.status, StatusCode::OK, "{name}");
        assert!(answer.body.contains("BucketSet"));
    }
}

#[tokio::test]
async fn looking_is_all_that_can_be_done() {
    let served = Served::of_captures(&[]).await;
    for method in [
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::PATCH,
        Method::OPTIONS,
    ] {
        let answer = served.ask(method.clone(), "/").send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED, "{method}");
    }
    let head = served.ask(Method::HEAD, "/").send().await.unwrap();
    assert_eq!(head.status(), StatusCode::OK);
    let long = format!("/?name={}", "x".repeat(5_000));
    assert_eq!(served.get(&long).await.status, StatusCode::URI_TOO_LONG);
}

#[tokio::test]
async fn nothing_outside_of_the_reconciles_can_be_read() {
    let home = Home::new();
    home.play(&[], &capture("dropper")).await;
    let outside = home.data_dir().join("store/v1/reconciles/a/b/c/d");
    std::fs::create_dir_all(&outside).unwrap();
    std::fs::write(home.path().join("secret.json"), "canary").unwrap();
    std::os::unix::fs::symlink(home.path().join("secret.json"), outside.join("x.json")).unwrap();
    let served = Served::of_home(home).await;
    for key in [
        "",
        "v1/check.json",
        "v1/reconciles/../../../../secret.json",
        "v1/reconciles/..%2f..%2f..%2f..%2fsecret.json",
        "v1/reconciles/a/b/c/d/%2e%2e",
        "/etc/passwd",
        "file:///etc/passwd",
        "v1/reconciles/a/b/c/d/e/f",
        "v1/index/date=2026-11-16/hour=04/a.jsonl.zst",
        "v1/reconciles/a/b/c/d/x%00.json",
    ] {
        for page in ["open", "raw", "open/signed"] {
            let answer = served.get(&format!("/{page}?key={key}")).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{page} {key}");
            assert!(
                !answer.body.contains("canary") && !answer.body.contains("root:"),
                "{key}"
            );
        }
    }
    for path in [
        "/assets/..%2f..%2fCargo.toml",
        "/assets/viewer.css",
        "/trace/..%2f..%2f",
    ] {
        assert_ne!(served.get(path).await.status, StatusCode::OK, "{path}");
    }
}
