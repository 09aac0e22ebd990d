import { describe, expect, it } from 'vitest'
import { Fabric } from '../src/fabric'
import { age, duration, percent, rate } from '../src/format'
import { codeOf, formatRoute, parseRoute } from '../src/route'
import { csv } from '../src/save'
import type { Topology } from '../src/stream/types'
import { verdict, worstLinks } from '../src/verdict'

describe('an address', () => {
  it('comes back as it was, with any name', () => {
    for (const name of ['a', 'a/b?c=d&e#f', '<b>x</b>', 'ü → ñ', 'x'.repeat(200)]) {
      const route = { view: 'map', selection: { kind: 'link', a: name, b: 'z' }, at: 1_764_500_000_123, extra: { form: 'matrix' } } as const
      expect(parseRoute(formatRoute(route))).toEqual(route)
    }
  })

  it('of nothing known is Now, live', () => {
    for (const hash of ['', '#', '#/', '#/nowhere?at=soon', '#/%%%'])
      expect(parseRoute(hash)).toMatchObject({ view: 'now', selection: null, at: null })
  })

  it('holds a code only where it is no route', () => {
    expect([codeOf('#ABC-123'), codeOf('#/map'), codeOf(''), codeOf('#')]).toEqual(['ABC-123', null, null, null])
  })
})

describe('figures as text', () => {
  it('have three digits and a unit', () => {
    expect([rate(0), rate(999.6), rate(9_920_000_000), rate(null)]).toEqual(['0 bit/s', '1 kbit/s', '9.92 Gbit/s', '–'])
    expect([duration(812), duration(1500), duration(13_787_000), duration(2e9)]).toEqual(['812 ns', '1.5 µs', '13.8 ms', '2 s'])
    expect([percent(0), percent(0.42), percent(0.0031), percent(1e-7)]).toEqual(['0 %', '42 %', '0.31 %', '< 0.001 %'])
    expect([age(400), age(61_000), age(7_300_000), age(null)]).toEqual(['0.4 s', '61 s', '2 h', 'never'])
  })
})

describe('CSV', () => {
  it('quotes, and disarms formulas', () => {
    expect(csv([['a,b', 'say "x"', '=1+1', '-3', '–']])).toBe('"a,b","say ""x""",\'=1+1,-3,–\r\n')
  })
})

const topology: Topology = {
  name: 'line', hash: 'h', layout: 'layers', bounds: [0, 0, 1, 1], hosts: [],
  switches: ['a', 'b', 'c'].map((name, x) => ({ name, x, y: 0, layer: null, place: null })),
  cables: [{ a: 0, b: 1, rate_bps: 1e9, delay_ns: 1 }, { a: 1, b: 2, rate_bps: 1e9, delay_ns: 1 }]
}
const fabric = new Fabric(topology)
const planes = (use: number[], loss = [0, 0, 0, 0]) => Uint8Array.from([...use, 0, 0, 0, 0, ...loss])
const beat = { now_ns: 0, sources: [{ name: 'collector', age_ns: 1, problem: null }], flows: null }

describe('the verdict', () => {
  it('is good, with what is not measured', () => {
    expect(verdict(fabric, planes([10, 10, 255, 255]), [], beat, false)).toEqual({ level: 'good', sentence: 'All is well on 2 measured links. 2 links without telemetry.' })
  })

  it('raises no alarm for an event that somebody looks after', () => {
    const event = { id: 'a', rule: 'slow', severity: 'critical' as const, subject: 'link a->b', link: 0, opened_ns: 1, closed_ns: null, text: 'slow' }
    const note = { by: 'ada', text: '', at_ns: 2 }
    const up = planes([10, 10, 10, 10])
    expect(verdict(fabric, up, [{ ...event, note: null }], beat, false)).toEqual({ level: 'critical', sentence: '1 critical event is open.' })
    expect(verdict(fabric, up, [{ ...event, note }], beat, false)).toEqual({ level: 'good', sentence: 'All is well on 4 measured links. 1 acknowledged event is open.' })
  })

  it('names links that are down before full ones', () => {
    expect(verdict(fabric, planes([254, 250, 10, 10]), [], beat, false)).toEqual({ level: 'critical', sentence: '1 link is down and 1 link is above 95 %.' })
  })

  it('says nothing of old figures', () => {
    const silent = { ...beat, sources: [{ name: 'collector', age_ns: null, problem: 'refused' }] }
    expect(verdict(fabric, planes([10, 10, 10, 10]), [], silent, true)).toEqual({ level: 'unknown', sentence: 'Nothing can be said: the figures are old: collector: refused.' })
    expect(verdict(fabric, null, [], null, false).level).toBe('unknown')
    expect(verdict(fabric, planes([255, 255, 255, 255]), [], beat, false).level).toBe('unknown')
  })
})

describe('the worst links', () => {
  it('are down, then losing, then busy; never those without figures', () => {
    const rows = worstLinks(fabric, planes([200, 254, 10, 255], [0, 0, 200, 0]), 5)
    expect(rows.map((row) => row.link)).toEqual([1, 2, 0])
  })
})
