//! Reads a result, whole.

use std::num::NonZeroUsize;

use bytemuck::Pod;
use haloflow_geometry::{Box3, Zyx};
use haloflow_volume::{CpuPool, Element, Environment, InputDescription, InputOptions, VolumeReader};

/// A volume in memory.
#[derive(Clone, Debug)]
pub struct Volume<T> {
    /// What it is.
    pub description: InputDescription,
    /// Size, z y x.
    pub shape: Zyx,
    /// The voxels, C order.
    pub voxels: Vec<T>,
}

/// Reads time point `t` and channel `c` of the volume at `source`; its kind of number must be `T`'s.
#[must_use]
pub fn read<T: Pod>(source: &str, environment: &Environment, element: Element, [t, c]: [usize; 2]) -> Volume<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let cpu = CpuPool::new(NonZeroUsize::MIN).unwrap();
    let options = InputOptions { t, c: vec![c], ..haloflow_examples::volume::input(source) };
    runtime.block_on(async {
        let reader = VolumeReader::open(&options, environment, &cpu).await.unwrap();
        assert_eq!(reader.element(), element, "{source}");
        let shape = reader.shape();
        let brick = reader.read(Box3::of_shape(shape)).await.unwrap();
        let voxels = brick.channels[0].as_slice::<T>().to_vec();
        Volume { description: reader.description().clone(), shape, voxels }
    })
}

/// Reads a u16 volume from the local disk, at time point 0 and channel 0.
#[must_use]
pub fn read_u16(source: &std::path::Path) -> Vec<u16> {
    read(source.to_str().unwrap(), &Environment::empty(), Element::U16, [0, 0]).voxels
}
