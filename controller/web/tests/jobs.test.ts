import { describe, expect, it } from 'vitest'
import type { Job, Worker } from '../src/api'
import { holdUp, perSecond, workersOf } from '../src/jobs'

const waits = { last: 9, last_share: 0.9, wait_mean_ns: 1e6, wait_max_ns: 2e6, wait_caused_ns: 9e5 }
const worker = (host: string, state = 'working'): Worker => ({ host, state, heard_ns: 0, switch: 's1', ...waits })
const figures = {
  items: 10, items_per_s: 1234.5, reported: 10, repeated: 0, repeated_per_item: 0, wait_mean_ns: 1e6, wait_p50_ns: 1, wait_p99_ns: 1, wait_max_ns: 1,
  cells_used: 1, cells: 8, age_ns: 1e6
}
const job: Job = {
  id: '1 resnet', name: 'resnet', number: 1, state: 'running', epoch: 1, workers: 2, window: 64, capacity: 2, reason: '', ended_ns: null,
  root: 's1', switches: ['s1'], links: [], ...figures, at: [{ switch: 's1', is_leaf: false, ...figures }], members: [worker('h1'), worker('h2')],
  slowest: { name: 'h2', switch: 's1', ...waits }
}

describe('who holds a job up', () => {
  it('is the worker that causes most of the waiting', () => {
    expect(holdUp(job)).toMatchObject({ who: 'h2', tone: 'warning' })
    expect(holdUp(job).sentence).toBe('resnet adds up 1,235 items a second. h2 holds it up by 900 µs an item: 90 % of the waiting at s1.')
  })

  it('is nobody where two take turns, somebody where it is one of many', () => {
    const slowest = { name: 'h2', switch: 's1', ...waits, wait_caused_ns: 5.2e5 }
    expect(holdUp({ ...job, slowest })).toMatchObject({ tone: '', sentence: 'resnet adds up 1,235 items a second. No worker in particular holds it up.' })
    const many = ['h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'h7', 'h8'].map((host) => worker(host))
    expect(holdUp({ ...job, slowest, members: many }).tone).toBe('warning')
  })

  it('is who has gone, before all else', () => {
    const members = [worker('h1'), worker('h2', 'disconnected')]
    expect(holdUp({ ...job, members })).toMatchObject({ who: 'h2', tone: 'critical', sentence: 'resnet: h2 is disconnected.' })
  })

  it('is not said without figures', () => {
    expect(holdUp({ ...job, age_ns: null }).sentence).toBe('resnet: no switch has reported an item yet.')
    expect(holdUp({ ...job, age_ns: 9e9 }).sentence).toBe('resnet: the last item was reported 9 s ago.')
    expect(holdUp({ ...job, state: 'gathering' }).sentence).toBe('resnet waits for workers: 2 of 2 have joined.')
    expect(holdUp({ ...job, ended_ns: 1, reason: 'all left' }).sentence).toBe('resnet has ended: all left.')
  })

  it('comes with figures one can read', () => {
    expect([perSecond(null), perSecond(0.1234), perSecond(127)]).toEqual(['–', '0.123', '127'])
    expect(workersOf({ ...job, workers: null })).toBe('2 seen')
  })
})
