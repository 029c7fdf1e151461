//! A step as a call that can be made again.

use maud::{Markup, html};

use crate::{
    answers::Payload,
    line::{Line, LineStep},
    viewer::{address, assets::PROTO, words::size},
};

/// Where a function listens when it is started with `--insecure`, as its template has it.
const FUNCTION: &str = "localhost:9443";
const METHOD: &str = "apiextensions.fn.proto.v1.FunctionRunnerService/RunFunction";
/// `grpcurl` takes 4 MiB if it is not told otherwise; no payload that is stored is larger than this.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;
/// What gRPC servers take if they are not told otherwise.
const USUAL_LIMIT_BYTES: u64 = 4 * 1024 * 1024;

pub(super) fn render(
    line: &Line,
    step: &LineStep,
    request: Payload<'_>,
    origin: &str,
    has_token: bool,
) -> Markup {
    let (Payload::Json(_), Some(at)) = (request, &step.request) else {
        return html! {};
    };
    let address = address::raw(&line.object.key, &at.pointer);
    let header = if has_token {
        "-H \"Authorization: Bearer $SPANPLANE_VIEWER_TOKEN\" "
    } else {
        ""
    };
    // NOTE: nothing in an address of a payload needs more than these quotes.
    // Without the description, `grpcurl` would ask the function for one: many have none to give, and
    // an older one knows less than what is sent.
    let commands = format!(
        "curl -sS {header}-o request.json '{origin}{address}&as=call'\n\
         curl -sS {header}-o run_function.proto '{origin}{proto}'\n\
         grpcurl -plaintext -import-path . -proto run_function.proto -allow-unknown-fields \\\n  \
         -max-msg-sz {MAX_ANSWER_BYTES} -d @ {FUNCTION} {METHOD} < request.json",
        proto = PROTO.address,
    );
    html! {
        section class="call" aria-labelledby="call-title" {
            h2 id="call-title" { "Call it again" }
            p class="quiet" {
                "Start the function on this machine ("
                code { "--insecure --debug" }
                ", or its container with port 9443 mapped), then:"
            }
            pre class="text" data-copy { (commands) }
            @if at.size >= USUAL_LIMIT_BYTES {
                p class="quiet" {
                    "The request has " (size(at.size)) ". A function takes 4 MiB unless it is told otherwise: those of the Go SDK by "
                    code { "--max-recv-message-size=64" } "."
                }
            }
            @if at.redacted > 0 {
                p class="quiet" { "Redacted values stay redacted: a function that needs them will miss them." }
            }
        }
    }
}
