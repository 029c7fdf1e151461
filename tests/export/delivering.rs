//! What goes well, and what a collector says besides.

use crate::{
    otlp::{OtlpServer, Reply},
    setup::{Delivery, GLACIAL, QUICK, Sender, all, batch, collectors},
};

#[tokio::test]
async fn a_batch_arrives_as_it_is() {
    for server in collectors().await {
        let mut sender = Sender::new(&server);
        assert_eq!(sender.deliver(&["a", "b"]).await, all(2));
        assert_eq!(server.received(), [batch(&["a", "b"])]);
        assert_eq!(sender.exported(), 2);
        assert_eq!((sender.failures(), sender.lost()), (0, 0));
        assert_eq!(sender.rejected(), 0);
    }
}

#[tokio::test]
async fn nothing_is_sent_for_nothing() {
    for server in collectors().await {
        let mut sender = Sender::new(&server);
        assert_eq!(sender.deliver(&[]).await, all(0));
        assert_eq!(server.tries().len(), 0);
    }
}

#[tokio::test]
async fn headers_arrive_with_every_try() {
    for server in collectors().await {
        let variables = [(
            "OTEL_EXPORTER_OTLP_HEADERS",
            "authorization=Bearer%20abc,X-Scope-OrgID=team",
        )];
        let mut sender = Sender::with(&server, &variables, QUICK);
        sender.deliver(&["a"]).await;
        sender.deliver(&["b"]).await;
        let tries = server.tries();
        assert_eq!(tries.len(), 2);
        for headers in tries {
            assert_eq!(headers["authorization"], "Bearer abc");
            assert_eq!(headers["x-scope-orgid"], "team");
            let agent = headers["user-agent"].to_str().unwrap();
            assert!(agent.starts_with("spanplane/"), "{agent}");
            if !server.is_grpc() {
                assert_eq!(headers["content-type"], "application/x-protobuf");
            }
        }
    }
}

#[tokio::test]
async fn a_batch_can_be_compressed() {
    for server in collectors().await {
        let variables = [("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")];
        let mut sender = Sender::with(&server, &variables, QUICK);
        assert_eq!(sender.deliver(&["a", "b"]).await, all(2));
        assert_eq!(server.received(), [batch(&["a", "b"])]);
        let encoding = if server.is_grpc() {
            "grpc-encoding"
        } else {
            "content-encoding"
        };
        assert_eq!(server.tries()[0][encoding], "gzip");
    }
}

#[tokio::test]
async fn what_a_collector_rejects_is_counted_and_not_sent_again() {
    for server in collectors().await {
        server.script([Reply::AcceptAllBut(2, "too old")]);
        let mut sender = Sender::with(&server, &[], GLACIAL);
        let delivery = sender.deliver(&["a", "b", "c"]).await;
        let expected = Delivery {
            accepted: 1,
            rejected: 2,
            ..Delivery::default()
        };
        assert_eq!(delivery, expected);
        assert_eq!((sender.exported(), sender.rejected()), (1, 2));
        assert_eq!(server.tries().len(), 1);
    }
}

#[tokio::test]
async fn a_collector_cannot_reject_more_than_it_got_or_less_than_nothing() {
    for server in collectors().await {
        server.script([
            Reply::AcceptAllBut(i64::MAX, ""),
            Reply::AcceptAllBut(i64::MIN, "a warning"),
            Reply::AcceptAllBut(0, "a warning"),
        ]);
        let mut sender = Sender::new(&server);
        assert_eq!(sender.deliver(&["a", "b"]).await.rejected, 2);
        assert_eq!(sender.deliver(&["c", "d"]).await, all(2));
        assert_eq!(sender.deliver(&["e"]).await, all(1));
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_an_answer() {
    let server = OtlpServer::start_http().await;
    let json = &[("content-type", "application/json")];
    let protobuf = &[("content-type", "application/x-protobuf")];
    server.script([
        Reply::Http(200, json, "{}"),
        Reply::Http(202, protobuf, "no protobuf at all"),
        Reply::Http(204, &[], ""),
    ]);
    let mut sender = Sender::with(&server, &[], GLACIAL);
    for _ in 0..3 {
        assert_eq!(sender.deliver(&["a"]).await, all(1));
    }
    assert_eq!(server.tries().len(), 3);
}
