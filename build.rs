//! Generates the wire types from `proto/` without `protoc`.
//!
//! Three things come out: the messages, in which payloads are slices of the receive buffer and
//! the step's meta stays undecoded (it exists in two layouts, see `src/decode.rs`); the service,
//! which passes whole messages through as bytes, so that nothing is decoded before the answer;
//! and the unchanged descriptors, for gRPC reflection.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;
use protox::prost_reflect::prost_types::{
    FileDescriptorSet, field_descriptor_proto::Type as FieldType,
};

const PIPELINE: &str = "crossplane/pipeline/v1alpha1/pipeline.proto";
const DRAFT: &str = "spanplane/draft/step_meta.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let out = PathBuf::from(env::var("OUT_DIR")?);

    let shipped = protox::compile([PIPELINE], ["proto"])?;
    fs::write(
        out.join("pipeline_descriptors.bin"),
        shipped.encode_to_vec(),
    )?;

    let mut messages = protox::compile([PIPELINE, DRAFT], ["proto"])?;
    keep_meta_as_bytes(&mut messages);
    prost_build::Config::new()
        .bytes(["."])
        .compile_fds(messages)?;

    tonic_build::manual::Builder::new().compile(&[inspector_service()]);
    Ok(())
}

/// A length-delimited field reads the same as message or as bytes: the wire does not change.
fn keep_meta_as_bytes(files: &mut FileDescriptorSet) {
    for message in files
        .file
        .iter_mut()
        .flat_map(|file| &mut file.message_type)
    {
        if !message.name().starts_with("Emit") {
            continue;
        }
        for field in message
            .field
            .iter_mut()
            .filter(|field| field.name() == "meta")
        {
            field.set_type(FieldType::Bytes);
            field.type_name = None;
        }
    }
    for file in &mut files.file {
        file.service.clear();
    }
}

fn inspector_service() -> tonic_build::manual::Service {
    let pass_through = |name: &str, route: &str| {
        tonic_build::manual::Method::builder()
            .name(name)
            .route_name(route)
            .input_type("bytes::Bytes")
            .output_type("bytes::Bytes")
            .codec_path("crate::proto::PassThrough")
            .build()
    };
    tonic_build::manual::Service::builder()
        .name("PipelineInspectorService")
        .package("crossplane.pipeline.v1alpha1")
        .method(pass_through("emit_request", "EmitRequest"))
        .method(pass_through("emit_response", "EmitResponse"))
        .build()
}
