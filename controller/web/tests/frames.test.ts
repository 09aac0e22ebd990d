import { describe, expect, it } from 'vitest'
import { delayByte, excessNsOf, lossByte, lossOf, shareOf } from '../src/stream/figures'
import { FrameReader, FrameType, MOST_BYTES } from '../src/stream/frames'
import { addDifference, StreamState } from '../src/stream/state'
import type { Topology } from '../src/stream/types'

const encoder = new TextEncoder()

function frame(type: number, payload: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(5 + payload.length)
  new DataView(bytes.buffer).setUint32(0, payload.length + 1)
  bytes[4] = type
  bytes.set(payload, 5)
  return bytes
}

async function columns(timeNs: bigint, planes: number[]): Promise<Uint8Array> {
  const stream = new Blob([Uint8Array.from(planes)]).stream().pipeThrough(new CompressionStream('deflate'))
  const packed = new Uint8Array(await new Response(stream).arrayBuffer())
  const payload = new Uint8Array(8 + packed.length)
  new DataView(payload.buffer).setBigUint64(0, timeNs)
  payload.set(packed, 8)
  return payload
}

const topology: Topology = {
  name: 'two', hash: 'h', layout: 'layers', bounds: [0, 0, 1, 1],
  switches: [{ name: 'a', x: 0, y: 0, layer: 0, place: null }, { name: 'b', x: 1, y: 1, layer: 1, place: null }],
  hosts: [{ name: 'h', switch: 0, x: 0, y: 1 }],
  cables: [{ a: 0, b: 1, rate_bps: 1e9, delay_ns: 1000 }, { a: 2, b: 0, rate_bps: 1e9, delay_ns: 10 }]
}
const json = (value: unknown) => encoder.encode(JSON.stringify(value))

describe('frames', () => {
  it('come whole out of any chunks', () => {
    const stream = new Uint8Array([...frame(1, json({ version: 1 })), ...frame(9, new Uint8Array(0)), ...frame(6, json({ now_ns: 5 }))])
    for (let size = 1; size <= stream.length; size++) {
      const reader = new FrameReader()
      const types: number[] = []
      for (let at = 0; at < stream.length; at += size) types.push(...reader.push(stream.subarray(at, at + size)).map((one) => one.type))
      expect(types).toEqual([1, 9, 6])
    }
  })

  it('of no length, or of too much, are refused', () => {
    for (const length of [0, MOST_BYTES + 1]) {
      const bytes = new Uint8Array(5)
      new DataView(bytes.buffer).setUint32(0, length)
      expect(() => new FrameReader().push(bytes)).toThrow(RangeError)
    }
  })
})

describe('the state', () => {
  it('is full columns and their differences, modulo 256', async () => {
    const state = new StreamState()
    await state.apply({ type: FrameType.topology, payload: json(topology) })
    const full = await state.apply({ type: FrameType.full, payload: await columns(1_764_500_000_123_456_789n, [250, 3, 0, 1, 2, 255]) })
    expect(full).toMatchObject({ kind: 'columns', timeMs: 1_764_500_000_123.456 })
    const next = await state.apply({ type: FrameType.difference, payload: await columns(2n, [4, 0, 1, 255, 0, 1]) })
    expect(next).toMatchObject({ planes: Uint8Array.from([254, 3, 1, 0, 2, 0]) })
  })

  it('refuses a difference first, and columns of another topology', async () => {
    const state = new StreamState()
    await state.apply({ type: FrameType.topology, payload: json(topology) })
    await expect(state.apply({ type: FrameType.difference, payload: await columns(1n, [0, 0, 0, 0, 0, 0]) })).rejects.toThrow('before full')
    await expect(state.apply({ type: FrameType.full, payload: await columns(1n, [0]) })).rejects.toThrow('1 bytes')
  })

  it('refuses another version, and passes over types it does not know', async () => {
    const state = new StreamState()
    await expect(state.apply({ type: FrameType.hello, payload: json({ version: 2 }) })).rejects.toThrow('version 2')
    expect(await state.apply({ type: 99, payload: new Uint8Array(0) })).toBeNull()
  })

  it('forgets columns with their topology', async () => {
    const state = new StreamState()
    await state.apply({ type: FrameType.topology, payload: json(topology) })
    await state.apply({ type: FrameType.full, payload: await columns(1n, [0, 0, 0, 0, 0, 0]) })
    await state.apply({ type: FrameType.topology, payload: json({ ...topology, hash: 'other' }) })
    expect(state.newest.has('columns')).toBe(false)
  })

  it('adds bytes without carrying', () => {
    expect(addDifference(Uint8Array.from([255, 0]), Uint8Array.from([2, 255]))).toEqual(Uint8Array.from([1, 255]))
  })
})

describe('figures', () => {
  it('are shares of 250, and none for a link without telemetry', () => {
    expect([shareOf(0), shareOf(125), shareOf(250), shareOf(251), shareOf(254), shareOf(255)]).toEqual([0, 0.5, 1, null, null, null])
  })

  it('are eighths of an octave, there and back', () => {
    expect(excessNsOf(1)).toBe(1000)
    expect(excessNsOf(9)).toBe(2000)
    expect(lossOf(254)).toBe(1)
    expect(lossOf(246)).toBe(0.5)
    expect([excessNsOf(255), lossOf(255)]).toEqual([null, null])
    for (let byte = 1; byte < 255; byte++) {
      expect(delayByte(excessNsOf(byte) as number)).toBe(byte)
      expect(lossByte(lossOf(byte) as number)).toBe(byte)
    }
  })
})
