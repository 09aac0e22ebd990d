// Who holds a job up, in words.

import type { Job } from './api'
import { duration, percent } from './format'

/** A running job without a report for this long is stuck, or sends less than a switch reports. */
const SILENT_NS = 5e9
/** The least share of the waiting that one of few workers causes if it holds the others up; of many, twice its own. */
const MOSTLY = 0.6

export interface HoldUp {
  who: string | null
  tone: '' | 'warning' | 'critical'
  sentence: string
}

export function perSecond(value: number | null): string {
  if (value === null) return '–'
  return value >= 100 ? Math.round(value).toLocaleString('en') : Number(value.toPrecision(3)).toString()
}

export function workersOf(job: Job): string {
  return job.workers === null ? `${job.members.length} seen` : `${job.members.length} of ${job.workers}`
}

export function holdUp(job: Job): HoldUp {
  const name = job.name
  if (job.ended_ns !== null) return { who: null, tone: '', sentence: `${name} has ended: ${job.reason}.` }
  if (job.state === 'gathering')
    return { who: null, tone: 'warning', sentence: `${name} waits for workers: ${workersOf(job)} have joined.` }
  const lost = job.members.filter((worker) => worker.state === 'disconnected').map((worker) => worker.host)
  if (lost.length > 0)
    return { who: lost.join(', '), tone: 'critical', sentence: `${name}: ${lost.join(', ')} ${lost.length === 1 ? 'is' : 'are'} disconnected.` }
  if (job.state === 'held') return { who: null, tone: 'warning', sentence: `${name} is held at a barrier: a worker joins, or its tree moves.` }
  if (job.age_ns === null) return { who: null, tone: '', sentence: `${name}: no switch has reported an item yet.` }
  if (job.age_ns > SILENT_NS) return { who: null, tone: 'warning', sentence: `${name}: the last item was reported ${duration(job.age_ns)} ago.` }
  const slowest = job.slowest
  const rate = `${perSecond(job.items_per_s)} items a second`
  if (slowest === null || slowest.wait_caused_ns === null) return { who: null, tone: '', sentence: `${name} adds up ${rate}.` }
  const beside = job.members.filter((worker) => worker.switch === slowest.switch).length
  const waiting = job.at.find((one) => one.switch === slowest.switch)?.wait_mean_ns ?? 0
  const share = waiting > 0 ? Math.min(1, slowest.wait_caused_ns / waiting) : 0
  const mostly = share >= Math.min(MOSTLY, 2 / Math.max(1, beside))
  return {
    who: mostly ? slowest.name : `nobody mostly (${slowest.name}: ${percent(share)})`,
    tone: mostly ? 'warning' : '',
    sentence: mostly ? `${name} adds up ${rate}. ${slowest.name} holds it up by ${duration(slowest.wait_caused_ns)} an item: ${percent(share)} of the waiting at ${slowest.switch}.` : `${name} adds up ${rate}. No worker in particular holds it up.`
  }
}
