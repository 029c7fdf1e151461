//! A step as a call that can be made again.

use maud::{Markup, html};

use crate::{
    line::{Line, LineStep},
    viewer::{address, texts::Text},
};

/// Where a function listens when it is started with `--insecure`, as its template has it.
const FUNCTION: &str = "localhost:9443";
const METHOD: &str = "apiextensions.fn.proto.v1.FunctionRunnerService/RunFunction";

pub(super) fn render(
    line: &Line,
    step: &LineStep,
    request: &Text,
    origin: &str,
    has_token: bool,
) -> Markup {
    let (Text::Json(_), Some(at)) = (request, &step.request) else {
        return html! {};
    };
    let address = address::raw(&line.object.key, &at.pointer);
    let header = if has_token {
        "-H \"Authorization: Bearer $SPANPLANE_VIEWER_TOKEN\" "
    } else {
        ""
    };
    // NOTE: nothing in an address of a payload needs more than these quotes.
    let commands = format!(
        "curl -sS {header}-o request.json '{origin}{address}&as=call'\n\
         grpcurl -plaintext -d @ {FUNCTION} {METHOD} < request.json"
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
            @if at.redacted > 0 {
                p class="quiet" { "Redacted values stay redacted: a function that needs them will miss them." }
            }
        }
    }
}
