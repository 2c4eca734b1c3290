//! Small volumes, written as OME-Zarr and read back whole.

use anyhow::{Context, Result};
use haloflow_geometry::{Box3, Zyx};
use haloflow_volume::{
    AlignedBytes, AxisInfo, AxisKind, CpuPool, Element, Environment, InputDescription, InputOptions, OutputPlan,
    OutputRequest, VolumeReader, VolumeWriter, ZarrFormat,
};
use serde_json::json;

/// A volume that is to be created: an OME-Zarr 0.5 group with the axes z, y, x and one level.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// URL or path of the group. Whatever volume is there is deleted.
    pub url: String,
    /// Size, voxels.
    pub shape: Zyx,
    /// The kind of number.
    pub element: Element,
    /// Size of a chunk, voxels.
    pub chunk: Zyx,
}

impl NewVolume {
    /// Writes the metadata, and opens the volume for writing. Chunks are compressed with Zstandard in blosc.
    ///
    /// # Errors
    /// As [`OutputPlan::check`] and [`OutputPlan::create`].
    pub async fn create(&self, environment: &Environment, cpu: &CpuPool) -> Result<VolumeWriter> {
        let plan = OutputPlan::check(self.request(), &self.description(), environment, cpu).await;
        let plan = plan.with_context(|| format!("{} cannot be created", self.url))?;
        plan.create(1, json!({"source": "haloflow-examples"}))
            .await
            .with_context(|| format!("{} cannot be created", self.url))
    }

    /// Creates the volume and writes `voxels`: [`shape`](Self::shape) elements, C order.
    ///
    /// # Errors
    /// As [`create`](Self::create) and [`VolumeWriter::write`].
    pub async fn write(&self, voxels: AlignedBytes, environment: &Environment, cpu: &CpuPool) -> Result<()> {
        let writer = self.create(environment, cpu).await?;
        let written = writer.write(Box3::of_shape(self.shape), vec![voxels]).await;
        written.map(drop).with_context(|| format!("{} cannot be written", self.url))
    }

    fn request(&self) -> OutputRequest {
        OutputRequest {
            targets: vec![self.url.clone()],
            stack_channels: false,
            element: Some(self.element),
            default_element: self.element,
            chunk: Some(self.chunk),
            shard: None,
            format: Some(ZarrFormat::V3),
            compressor: None,
            t: None,
            c: None,
            input_t: 0,
            input_c: 0,
            overwrite: true,
            resume: false,
            shared: false,
            block: None,
            provenance: json!(null),
        }
    }

    /// An output takes its axes from an input: this is one that exists in memory only.
    fn description(&self) -> InputDescription {
        let axes = ["z", "y", "x"].into_iter().zip(self.shape).map(|(name, size)| AxisInfo {
            name: name.to_owned(),
            kind: AxisKind::Space,
            unit: None,
            size,
            scale: 1.0,
            translation: 0.0,
        });
        InputDescription {
            url: "no://input".to_owned(),
            zarr_format: ZarrFormat::V3,
            axes: axes.collect(),
            levels: 1,
            level: 0,
            chunk: self.chunk.to_vec(),
            shard: None,
            is_group: true,
            element: self.element,
            compressor: "none".to_owned(),
            omero: None,
        }
    }
}

/// The options that open the finest level of `source` at time point 0 and channel 0.
#[must_use]
pub fn input(source: &str) -> InputOptions {
    InputOptions {
        source: source.to_owned(),
        level: 0,
        level_given: false,
        t: 0,
        c: vec![0],
        cache_bytes: 0,
        requests: 64,
    }
}

/// Reads the whole of a volume: its size and its voxels, C order.
///
/// # Errors
/// As [`VolumeReader::open`] and [`VolumeReader::read`].
pub async fn read(source: &str, environment: &Environment, cpu: &CpuPool) -> Result<(Zyx, AlignedBytes)> {
    let cannot = || format!("{source} cannot be read");
    let reader = VolumeReader::open(&input(source), environment, cpu).await.with_context(cannot)?;
    let shape = reader.shape();
    let brick = reader.read(Box3::of_shape(shape)).await.with_context(cannot)?;
    let voxels = brick.channels.into_iter().next().with_context(cannot)?;
    Ok((shape, voxels))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::s3::S3Server;

    #[tokio::test]
    async fn a_volume_comes_back_from_s3_and_the_server_counts() {
        let folder = tempfile::tempdir().unwrap();
        let server = S3Server::start(folder.path(), "bucket").unwrap();
        let environment = Environment::new(server.variables());
        let cpu = CpuPool::new(NonZeroUsize::MIN).unwrap();
        let new = NewVolume {
            url: "s3://bucket/a b+c.ome.zarr".to_owned(),
            shape: [5, 6, 7],
            element: Element::U16,
            chunk: [4; 3],
        };
        let voxels: Vec<u16> = (0..5 * 6 * 7).collect();
        new.write(AlignedBytes::from_slice(&voxels), &environment, &cpu).await.unwrap();
        let stored = server.counts();
        // Eight chunks, the array's metadata and the group's.
        assert_eq!(stored.puts, 10);
        assert!(stored.bytes_received > 0);

        let (shape, read_back) = read(&new.url, &environment, &cpu).await.unwrap();
        assert_eq!((shape, read_back.as_slice::<u16>()), (new.shape, &voxels[..]));
        let fetched = server.counts();
        assert!(fetched.gets >= stored.gets + 9, "{stored:?} {fetched:?}");
        assert!(fetched.bytes_sent > stored.bytes_sent);
    }

    #[tokio::test]
    async fn a_wrong_secret_is_refused_and_a_stopped_server_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let server = S3Server::start(folder.path(), "bucket").unwrap();
        let cpu = CpuPool::new(NonZeroUsize::MIN).unwrap();
        let wrong = server.variables().into_iter().map(|(name, value)| match name.as_str() {
            "AWS_SECRET_ACCESS_KEY" => (name, "wrong".to_owned()),
            _ => (name, value),
        });
        let error = read("s3://bucket/none", &Environment::new(wrong), &cpu).await.unwrap_err();
        assert!(format!("{error:#}").contains("403"), "{error:#}");
        let endpoint = server.endpoint();
        drop(server);
        assert!(std::net::TcpStream::connect(endpoint.trim_start_matches("http://")).is_err());
    }
}
