#!/usr/bin/env bash
# The commands behind knowledge.md, in order. Needs CROSSLING_DATA and a GPU; `crossling trim` first if the whole
# encoder is too large to copy (--set encoder.name=FOLDER on every study).
set -euo pipefail
for study in pos ner-5000 sentiment paraphrase; do
    crossling study run "recipes/studies/knowledge-$study.toml"
done
for study in pos ner-5000 sentiment paraphrase; do
    crossling study compare "studies/knowledge-$study"
done
crossling study compare studies/knowledge-ner-5000 --score span_macro_f1

models=(pos=studies/knowledge-pos/pos/cross pos-multi=studies/knowledge-pos/pos/multi
    ner=studies/knowledge-ner-5000/ner/cross ner-multi=studies/knowledge-ner-5000/ner/multi
    sentiment=studies/knowledge-sentiment/sentiment/cross sentiment-multi=studies/knowledge-sentiment/sentiment/multi
    paraphrase=studies/knowledge-paraphrase/paraphrase/cross
    paraphrase-multi=studies/knowledge-paraphrase/paraphrase/multi)
tasks=(--tasks pos,ner,sentiment,paraphrase --languages en,de,es,fr
    --set 'tasks.pos={train="ud:en_ewt:train",on="ud",split="test"}'
    --set 'tasks.ner={train="panx:en:train[:5000]",on="panx",split="dev"}'
    --set 'tasks.sentiment={train="umsab:en",on="umsab",split="test"}'
    --set 'tasks.paraphrase={train="pawsx:en:dev[:1400]",on="pawsx",split="dev[1600:]"}')
crossling analyse probe "${models[@]}" "${tasks[@]}" --rows 3000 --test-rows 1000 --choose pos:pos-multi --choose ner:ner-multi \
    --choose sentiment:sentiment-multi --choose paraphrase:paraphrase-multi
crossling analyse head_updates "${models[@]}" --compare pos:pos-multi --compare ner:ner-multi \
    --compare sentiment:sentiment-multi --compare paraphrase:paraphrase-multi
# Keep analyses/head_probe.parquet: it has the scores of every head and seed, from which any null can be computed.
crossling analyse head_probe "${models[@]}" "${tasks[@]}" --rows 1000 --test-rows 300
crossling analyse head_probe "${models[@]}" "${tasks[@]}" --rows 1000 --test-rows 300 --null residuals_in_layers \
    --out analyses/head_probe-in-layers.csv
train='training.train=["ud:en_ewt:train","ud:de_gsd:dev","ud:es_gsd:dev","ud:fr_gsd:dev","panx:en:train[:10000]","panx:de:train[:10000]","panx:es:train[:10000]","panx:fr:train[:10000]"]'
score() { # TASK STUDY DATA LANGUAGES …: each task's own test text, adapted encoders with their own heads
    local task=$1 cells=studies/$2/$1
    crossling analyse perplexity original=multilingual-e5-small "$task=$cells/cross" "$task-multi=$cells/multi" \
        "$task+DA=$cells/DA" "$task-adapted=$cells/DA@0" --on "$3" --languages "$4" --sentences 200 --set "$train" \
        --out "analyses/perplexity-$task.csv" "${@:5}"
}
score pos knowledge-pos ud en_ewt,de_gsd,es_gsd,fr_gsd
score ner knowledge-ner-5000 panx en,de,es,fr --split dev
score sentiment knowledge-sentiment umsab en,de,es,fr
score paraphrase knowledge-paraphrase pawsx en,de,es,fr --split 'dev[1600:]'
