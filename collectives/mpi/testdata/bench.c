// The measurements of transporttest.Measure as a plain MPI program, to compare
// with: messages to and fro between ranks 0 and 1, an all-reduce of 64 MiB.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static double least(const double *v, int n) {
    double m = v[0];
    for (int i = 1; i < n; i++)
        if (v[i] < m)
            m = v[i];
    return m;
}

static void to_and_fro(int rank, char *buf, int n) {
    if (rank == 0) {
        MPI_Send(buf, n, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(buf, n, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == 1) {
        MPI_Recv(buf, n, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(buf, n, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int bytes, rounds;
    } cases[] = {{"8B-latency", 8, 300}, {"64KiB-latency", 64 << 10, 60}, {"4MiB-bandwidth", 4 << 20, 3}};
    int rank;
    double times[64];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int c = 0; c < 3; c++) {
        char *buf = calloc(1, cases[c].bytes);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int batch = 0; batch < 60; batch++) {
            double began = MPI_Wtime();
            for (int i = 0; i < cases[c].rounds; i++)
                to_and_fro(rank, buf, cases[c].bytes);
            if (batch > 0)
                times[batch - 1] = (MPI_Wtime() - began) / (2 * cases[c].rounds);
        }
        double m = least(times, 59);
        if (rank == 0 && cases[c].bytes < 1 << 20)
            printf("figure %s %.4f µs\n", cases[c].name, m * 1e6);
        else if (rank == 0)
            printf("figure %s %.4f GB/s\n", cases[c].name, cases[c].bytes / m / 1e9);
        free(buf);
    }
    int n = 16 << 20;
    float *sum = calloc(n, sizeof *sum);
    for (int i = 0; i < 10; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double began = MPI_Wtime();
        MPI_Allreduce(MPI_IN_PLACE, sum, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        times[i] = (MPI_Wtime() - began) * 1e3;
    }
    if (rank == 0)
        printf("figure 64MiB-allreduce %.4f ms\n", least(times + 1, 9));
    MPI_Finalize();
    return 0;
}
